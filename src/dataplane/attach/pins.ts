import { accessSync, constants, existsSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { closeFd, detachLink, linkInfo, openPinned } from '#dataplane/loader/bpf-fd.js';
import type { Direction } from '#dataplane/loader/direction.js';
import { makeFolders } from '#files/make-folders.js';
import { check, libc } from '#libc/libc.js';
import { networkNamespace, OwnedElsewhere } from './ownership.js';

const BPF_FS_MAGIC = 0xcafe4a11;
const STANDARD_MOUNT = '/sys/fs/bpf';
/** The folders that Weir makes in the pin path; `filling-<number>` is a set of maps that is not complete. */
const OWN = /^(maps-[0-9a-f]+|links-\d+|names-\d+|filling-\d+)$/;

/**
 * The BPF pins that keep the datapath in the kernel while no process runs. The pin path has one folder
 * `maps-<number>` for each set of maps. It also has one folder `links-<network namespace>`, with a pin
 * `<ifindex>-<direction>` for each link, and a pin `forward-<n>` for the link of the forward judge (a
 * netfilter program). The folder `names-<network namespace>` has the names of the policed interfaces
 * (`PolicedNames`).
 */
export class Pins {
  readonly links: string;
  readonly names: string;

  constructor(readonly path: string) {
    const namespace = networkNamespace();
    this.links = join(path, `links-${namespace}`);
    this.names = join(path, `names-${namespace}`);
  }

  /**
   * Creates the pin folders. Mounts the BPF file system at `/sys/fs/bpf` first if it is not mounted there.
   */
  prepare(): void {
    if (!isBpfFileSystem(this.path)) {
      if (!`${this.path}/`.startsWith(`${STANDARD_MOUNT}/`))
        throw new Error(`create the pin folders: ${this.path} is not in a BPF file system, such as ${STANDARD_MOUNT}`);
      check(`mount bpffs on ${STANDARD_MOUNT}`, libc.mount('bpf', STANDARD_MOUNT, 'bpf', 0, null));
    }
    // Mode 0700: another user who can open the folder could take its `flock` lock.
    makeFolders(this.links, 0o700);
  }

  /** Returns whether names of policed interfaces are recorded, and this process may read them. */
  hasReadableNames(): boolean {
    try {
      accessSync(this.names, constants.R_OK);
      return true;
    } catch {
      return false;
    }
  }

  link(ifindex: number, direction: Direction): string {
    return join(this.links, `${ifindex}-${direction}`);
  }

  linkedInterfaces(): number[] {
    return existsSync(this.links)
      ? readdirSync(this.links)
          .filter(isOfInterface)
          .map((name) => Number.parseInt(name, 10))
      : [];
  }

  /**
   * Removes the folders of other network namespaces, if the interfaces of their links no longer exist.
   * Throws `OwnedElsewhere` if a link in such a folder is still attached to an interface.
   */
  refuseOthers(): void {
    if (!existsSync(this.path)) return;
    for (const name of readdirSync(this.path)) {
      const folder = join(this.path, name);
      if (!name.startsWith('links-') || folder === this.links) continue;
      const namespace = name.slice('links-'.length);
      for (const link of readdirSync(folder).filter(isOfInterface)) {
        if (polices(join(folder, link))) {
          throw new OwnedElsewhere(
            `the pins in ${this.path} police network namespace ${namespace}, and this process runs in ${networkNamespace()}: run it there, or use another pin_path`,
          );
        }
      }
      this.remove(folder);
      this.remove(join(this.path, `names-${namespace}`));
    }
  }

  /**
   * Detaches the programs of all links, and then removes the pins. The kernel frees a link only some time
   * after its last pin is removed. Until then, an attached program would still classify packets.
   */
  removeLinks(): void {
    for (const name of existsSync(this.links) ? readdirSync(this.links) : []) {
      const fd = openPinned(join(this.links, name));
      try {
        detachLink(fd);
      } finally {
        closeFd(fd);
      }
    }
    this.remove(this.links);
  }

  remove(path: string): void {
    rmSync(path, { recursive: true, force: true });
  }

  /** Removes all pins of Weir, and the pin path, unless it has other pins or is a mount point. */
  removeAll(): void {
    for (const name of readdirSync(this.path).filter((each) => OWN.test(each))) this.remove(join(this.path, name));
    try {
      rmdirSync(this.path);
    } catch (error) {
      if (!['ENOTEMPTY', 'EBUSY'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    }
  }
}

/** Returns false for the pin of the forward judge (a netfilter program), which belongs to no interface. */
function isOfInterface(name: string): boolean {
  return /^\d/.test(name);
}

function polices(link: string): boolean {
  const fd = openPinned(link);
  try {
    return linkInfo(fd).ifindex !== 0;
  } finally {
    closeFd(fd);
  }
}

export function isBpfFileSystem(path: string): boolean {
  let existing = path;
  while (!existsSync(existing)) existing = dirname(existing);
  const buffer = new Uint8Array(256);
  check(`statfs ${existing}`, libc.statfs(existing, buffer));
  return new DataView(buffer.buffer).getUint32(0, true) === BPF_FS_MAGIC;
}
