#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the kernels of accesses.cu pass memory, as compiled: accesses.py NVCC INCLUDE SOURCE WORK

For sm_80 and sm_90: a tile moves in accesses of 16 bytes, as few as its bytes allow; what the update reads is on its way before
anything is asked; encoders divide once a block, but for block_stat2, whose two levels are means, and for codes that choose numbers
and send them in eight bits, which divide each of these by the scale; nothing is kept in local memory, but for what SPILLS says. Looks
at the PTX, at what ptxas says of registers, and, where cuobjdump is found, at the machine code.
"""
import pathlib
import re
import shutil
import subprocess
import sys

NVCC, INCLUDE, SOURCE, WORK = sys.argv[1:5]
KERNELS = 150  # of accesses.cu that work on tiles
SPILLS = {'80': {'encode_bodyINS1_11block_stat2ENS2_16values_to_encode': 8, 'decode_onto_bodyINS1_14block_dct2_top': 40}}
# sm_80 lacks some registers there, for as many thread blocks as a multiprocessor is to have: at most so many bytes
WIDE_LOAD, WIDE_STORE = r'\bld\.(?:global\.)?(?:nc\.)?v4\.', r'\bst\.(?:global\.)?v4\.'
faults = []


def accesses_of_tile(mangled):
    """(loads, stores) of 16 bytes that a tile of 256 elements takes a lane, or None for a kernel that works on no tiles.

    Encoders have a second way for what begins elsewhere: two loads of 16 bytes where one would do, one more each than an access.
    """
    kinds = re.findall(r'8bfloat16|4half', mangled.replace('13bfloat16_wire', ''))
    words = 1 if kinds else 2  # accesses a lane for 256 elements
    if 'update_body' in mangled:
        return 8, words + (0 if 'updateE0' in mangled else 6)
    if 'convert_body' in mangled:
        to_narrow = re.search(r'convert_bodyIf', mangled) and kinds
        adds = 'Lb1E' in mangled
        return (2 if to_narrow else words) + (2 if adds else 0), words if to_narrow else 2
    if 'average_body' in mangled:
        return 4, 2
    if unusual(mangled):
        return None  # asked for local memory only
    if 'clear_where_wanted' in mangled:
        return 0, words
    if 'find_where_wanted' in mangled:
        return words, 0
    wire = 1 if '13bfloat16_wire' in mangled else 0  # numbers of 16 bits for codes
    tiles = 2 if re.search(r'Lm4096E|block_dct2_top', mangled) else 1  # a warp's, of a block that a thread block has
    if 'values_to_encode' in mangled:
        return 3 * words * tiles, wire
    if 'difference_to_encode' in mangled:
        return 6 * words * tiles, wire
    if 'decode_onto_body' in mangled:
        return 3 * words * tiles + wire, words * tiles
    return None


def divides_more(mangled):
    return re.search(r'block_stat2|block_random|scaled_random|block_(?:dct_)?topI\w*?Li8E', mangled)


def unusual(mangled):
    return any(size in mangled for size in ('ILm128E', 'ILm512E', 'ILm1024E'))


def at_least(mangled):
    """The same where loops are unrolled: so many, and no more narrow ones than for what no tile covers."""
    if 'squares_by_block' in mangled:
        narrow = 2 if 'take_step' in mangled and 'Lb1E' in mangled else 1
        takes = 'take_step' in mangled
        return 4, 4 if takes else 0, narrow, 1 if takes else 0
    if 'for_elements' in mangled and 'sum_body' in mangled:
        return 3, 2, None, None
    if 'decode_sum_body' in mangled and not unusual(mangled):
        return (2 if 'Lb1E' in mangled else 0), 2, None, None
    return None


def check_ptx(arch, text):
    seen = 0
    for kernel in text.split('.visible .entry')[1:]:
        mangled = kernel.split('(')[0].strip()
        body = kernel[kernel.index('{'):]
        loads, stores = len(re.findall(WIDE_LOAD, body)), len(re.findall(WIDE_STORE, body))

        def fault(what):
            faults.append(f'{arch}: {what}: {mangled}')

        if '.local' in body:
            fault('local memory')
        exact, least = accesses_of_tile(mangled), at_least(mangled)
        if exact is not None:
            seen += 1
            if (loads, stores) != exact:
                fault(f'{loads} loads and {stores} stores of 16 bytes, not {exact[0]} and {exact[1]}')
        elif least is not None:
            seen += 1
            if loads < least[0] or stores < least[1]:
                fault(f'{loads} loads and {stores} stores of 16 bytes, not at least {least[0]} and {least[1]}')
            element = r'(?:f32|u32|b32|u16|b16)'
            scalars = len(re.findall(r'\bld\.global\.' + element, body))
            if least[2] is not None and scalars > least[2]:
                fault(f'{scalars} narrow loads')
            if least[3] is not None and len(re.findall(r'\bst\.global\.' + element, body)) > least[3]:
                fault('narrow stores beside those of the ends')
        if 'update_body' in mangled:
            places = [m.start() for m in re.finditer(WIDE_LOAD, body)]
            between = body[places[0]:places[-1]]
            if re.search(r'\bbra\b|\bsetp\b', between):
                fault('something is asked between the loads of an update')
        if '_to_encode' in mangled and len(re.findall(r'\bdiv\.rn', body)) > 1 and not divides_more(mangled):
            fault('more than one division a block')
        if 'half' in mangled and ('convert_body' in mangled or 'take_step' in mangled) and 'cvt' not in body:
            fault('half is converted by hand')
    return seen


def check_machine_code(arch, cubin):
    text = subprocess.run(['cuobjdump', '-sass', cubin], check=True, capture_output=True, text=True).stdout
    for function in text.split('Function : ')[1:]:
        name = function.split('\n')[0]
        if 'update_body' not in name:
            continue
        loads = [m.start() for m in re.finditer(r'\bLDG\.E\.(?:\w+\.)*128', function)]
        if len(loads) != 8:
            faults.append(f'{arch}: {len(loads)} LDG.128 in {name}')
        elif re.search(r'\b(?:BRA|CALL)\b', function[loads[0]:loads[-1]]):
            faults.append(f'{arch}: a branch between the loads of {name}')


for arch in ('80', '90'):
    work = pathlib.Path(WORK) / f'sm_{arch}'
    work.mkdir(parents=True, exist_ok=True)
    cubin = work / 'accesses.cubin'
    made = subprocess.run([NVCC, '-std=c++20', '--expt-relaxed-constexpr', '-gencode', f'arch=compute_{arch},code=sm_{arch}', '-I', INCLUDE, '--keep',
                           '--keep-dir', str(work), '-cubin', '-Xptxas', '-v', SOURCE, '-o', str(cubin)], capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit(made.stdout + made.stderr)
    seen = check_ptx(f'sm_{arch}', (work / 'accesses.ptx').read_text())
    if seen != KERNELS:
        faults.append(f'sm_{arch}: expected {KERNELS} kernels that work on tiles, found {seen}')
    frames = re.findall(r"Function properties for (\S+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores", made.stderr)
    faults += [f'sm_{arch}: a stack frame of {frame} bytes, {spilled} of spilled registers: {name}' for name, frame, spilled in frames
               if max(int(frame), int(spilled)) > max((most for part, most in SPILLS.get(arch, {}).items() if part in name), default=0)]
    if len(frames) < KERNELS:
        faults.append(f'sm_{arch}: ptxas told of {len(frames)} kernels')
    code = 'its PTX'
    if shutil.which('cuobjdump'):
        check_machine_code(f'sm_{arch}', cubin)
        code = 'its PTX and machine code'
    print(f'sm_{arch}: {seen} kernels, {code}')
if faults:
    sys.exit('\n'.join(faults))
