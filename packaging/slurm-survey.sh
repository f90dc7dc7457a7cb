#!/bin/sh
# Surveys a shared directory from the nodes of a Slurm allocation: sbatch slurm-survey.sh /mnt/shared
#
# More words go to fathom survey. fathom is taken from PATH, and has the same path on all nodes.
#SBATCH --job-name=fathom
#SBATCH --nodes=4
# The step that holds the channel to a node needs a task beside the batch script's.
#SBATCH --ntasks-per-node=2
#SBATCH --exclusive
set -eu
: "${1:?name the directory: sbatch slurm-survey.sh DIRECTORY}"
exec fathom survey "$@" --hosts slurm --hosts-fathom "$(command -v fathom)"
