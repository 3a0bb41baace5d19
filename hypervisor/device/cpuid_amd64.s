#include "textflag.h"

// func cpuidInstruction(function, index uint32) (eax, ebx, ecx, edx uint32)
TEXT ·cpuidInstruction(SB), NOSPLIT, $0-24
	MOVL function+0(FP), AX
	MOVL index+4(FP), CX
	CPUID
	MOVL AX, eax+8(FP)
	MOVL BX, ebx+12(FP)
	MOVL CX, ecx+16(FP)
	MOVL DX, edx+20(FP)
	RET
