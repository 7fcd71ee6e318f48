import { existsSync, readFileSync } from 'node:fs';
import { lacking } from '#libc/capabilities.js';

const BTF = '/sys/kernel/btf';
const found = new Map<string, boolean>();

/**
 * Returns whether the kernel, or its loaded module `module`, has a function of this name. Reads the names in
 * the BTF once for each function that exists; a module that is missing may be loaded later.
 */
function hasFunction(name: string, module?: string): boolean {
  if (found.get(name) === true) return true;
  const has = ['vmlinux', ...(module === undefined ? [] : [module])].some((file) => {
    const path = `${BTF}/${file}`;
    return existsSync(path) && readFileSync(path).includes(`\0${name}\0`, 0, 'latin1');
  });
  found.set(name, has);
  return has;
}

/** Returns whether the kernel has netfilter programs: Linux 6.4 with CONFIG_NETFILTER_BPF_LINK. */
export function hasNetfilterPrograms(): boolean {
  return hasFunction('bpf_nf_link_attach');
}

/**
 * Returns whether BPF programs can search conntrack. False if the module nf_conntrack is not loaded. Only a
 * process with CAP_SYS_ADMIN can use the functions of a module, because the kernel gives no other process the
 * BTF of modules.
 */
export function hasConntrackLookup(): boolean {
  return hasFunction('bpf_skb_ct_lookup', lacksModuleBtf() ? undefined : 'nf_conntrack');
}

/** Returns whether the kernel refuses the BTF of its modules to this process. */
export function lacksModuleBtf(): boolean {
  return lacking(['CAP_SYS_ADMIN']).length > 0;
}
