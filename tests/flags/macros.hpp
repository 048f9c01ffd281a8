// SPDX-License-Identifier: Apache-2.0
// Macros that other people's headers have, behind which every header of acco must compile: headers.cmake includes them
// before. What they stand for compiles nowhere. A header that fails with them includes hide_macros.hpp and
// restore_macros.hpp.
#include <complex.h>
#include <sys/sysmacros.h>

#undef I
#define A ("A is a macro")
#define B ("B is a macro")
#define C ("C is a macro")
#define D ("D is a macro")
#define E ("E is a macro")
#define F ("F is a macro")
#define G ("G is a macro")
#define H ("H is a macro")
#define I ("I is a macro")
#define J ("J is a macro")
#define K ("K is a macro")
#define L ("L is a macro")
#define M ("M is a macro")
#define N ("N is a macro")
#define O ("O is a macro")
#define P ("P is a macro")
#define Q ("Q is a macro")
#define R ("R is a macro")
#define S ("S is a macro")
#define U ("U is a macro")
#define V ("V is a macro")
#define W ("W is a macro")
#define X ("X is a macro")
#define Y ("Y is a macro")
#define Z ("Z is a macro")
#define check ("check is a macro")
#define emit ("emit is a macro")
#define far ("far is a macro")
#define index ("index is a macro")
#define max ("max is a macro")
#define min ("min is a macro")
#define near ("near is a macro")
#define signals ("signals is a macro")
#define slots ("slots is a macro")
#define small ("small is a macro")
