import { built } from '#threads/built-file.js';

/** Path of the compiled BPF object of the datapath. */
export const builtObject = built('bpf/weir.bpf.o');
/**
 * Path of the compiled BPF object that lists third-party hooks (hooks of other software that forwarded
 * packets pass).
 */
export const builtThirdPartyProgram = built('bpf/third_party_hooks.bpf.o');
