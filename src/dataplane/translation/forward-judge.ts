import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { closeFd, detachLink, linkInfo, openPinned, pin } from '#dataplane/loader/bpf-fd.js';
import { bpf, check } from '#libc/libc.js';

const BPF_LINK_CREATE = 28;
const ATTACH_NETFILTER = 45;
const NFPROTO_IPV4 = 2;
const HOOK_FORWARD = 2;
/** Offsets in bytes of the fields of `union bpf_attr` for BPF_LINK_CREATE. */
const LINK = { program: 0, attachType: 8, family: 16, hook: 20, priority: 24, bytes: 48 } as const;
/**
 * Priorities of the forward judge (a netfilter program) at the forward hook: directly after the guard
 * (nftables rules of Weir). At a later priority, a third-party chain could restore an old mark before the
 * forward judge reads it. The kernel cannot replace the program of a netfilter link, and two programs cannot
 * have the same priority. So a new link is made at the other priority before the old one is removed.
 */
const PRIORITIES = [-2_147_483_647, -2_147_483_646] as const;
const PIN = /^forward-([12])$/;

/**
 * The link of the forward judge, a netfilter program (bpf/nat/forward_judge.h). It is pinned beside the links
 * of the hooks, so it stays when this process ends.
 */
export class ForwardJudge {
  readonly #folder: string;
  readonly #attached: () => readonly number[] | undefined;

  /**
   * `attached` returns the ids of the programs at the forward hook. It is needed because `bpftool link
   * detach` detaches a program and leaves the pin of its link. If `attached` returns undefined, each pinned
   * link counts as attached.
   */
  constructor(folder: string, attached: () => readonly number[] | undefined = () => undefined) {
    this.#folder = folder;
    this.#attached = attached;
  }

  /**
   * Attaches this program as the forward judge (a netfilter program), and then detaches each program of an
   * earlier datapath.
   */
  put(programFd: number, programId: number): void {
    const pinned = this.#pinned();
    const standing = pinned.filter(({ isAttached }) => isAttached);
    for (const link of pinned) if (!link.isAttached) this.#removePin(link.pin);
    if (!standing.some((link) => link.programId === programId)) {
      const taken = standing.map(({ place }) => place);
      const place = taken.includes(0) && !taken.includes(1) ? 1 : 0;
      for (const link of standing) if (link.place === place) this.#removePin(link.pin);
      this.#attach(programFd, place);
    }
    for (const link of standing) if (link.programId !== programId) this.#removePin(link.pin);
  }

  /** Returns the ids of the forward judges (Weir's netfilter programs) that are attached. */
  programs(): number[] {
    return this.#pinned().flatMap(({ programId, isAttached }) => (isAttached ? programId : []));
  }

  remove(): void {
    for (const link of this.#pinned()) this.#removePin(link.pin);
  }

  #attach(programFd: number, place: 0 | 1): void {
    const attributes = new Uint8Array(LINK.bytes);
    const view = new DataView(attributes.buffer);
    view.setUint32(LINK.program, programFd, true);
    view.setUint32(LINK.attachType, ATTACH_NETFILTER, true);
    view.setUint32(LINK.family, NFPROTO_IPV4, true);
    view.setUint32(LINK.hook, HOOK_FORWARD, true);
    view.setInt32(LINK.priority, PRIORITIES[place], true);
    const link = check('attach the forward judge', bpf(BPF_LINK_CREATE, attributes));
    try {
      pin(link, join(this.#folder, `forward-${place + 1}`));
    } finally {
      closeFd(link);
    }
  }

  /**
   * Returns the pinned links of the forward judge (a netfilter program). `place`: the index of their priority
   * in `PRIORITIES`.
   */
  #pinned(): {
    readonly pin: string;
    readonly place: number;
    readonly programId: number;
    readonly isAttached: boolean;
  }[] {
    if (!existsSync(this.#folder)) return [];
    const attached = this.#attached();
    return readdirSync(this.#folder).flatMap((name) => {
      const number = PIN.exec(name)?.[1];
      if (number === undefined) return [];
      const path = join(this.#folder, name);
      const fd = openPinned(path);
      try {
        const { programId } = linkInfo(fd);
        const isAttached = attached?.includes(programId) ?? true;
        return [{ pin: path, place: Number(number) - 1, programId, isAttached }];
      } finally {
        closeFd(fd);
      }
    });
  }

  /**
   * Detaches a pinned link before its pin is removed, because the kernel frees a link only some time after
   * its last pin is removed.
   */
  #removePin(path: string): void {
    const fd = openPinned(path);
    try {
      detachLink(fd);
    } finally {
      closeFd(fd);
    }
    rmSync(path, { force: true });
  }
}
