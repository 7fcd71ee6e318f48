import { built } from '#threads/built-file.js';

/** The compiled datapath. */
export const builtObject = built('bpf/weir.bpf.o');
/** The compiled program that lists third-party hooks. */
export const builtThirdPartyProgram = built('bpf/third_party_hooks.bpf.o');
