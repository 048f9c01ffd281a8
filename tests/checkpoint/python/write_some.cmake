# SPDX-License-Identifier: Apache-2.0
# Writes the checkpoints anew.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${FOLDER})
execute_process(COMMAND ${PROGRAM} ${FOLDER} COMMAND_ERROR_IS_FATAL ANY)
