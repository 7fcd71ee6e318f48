import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { Hooks } from '#dataplane/attach/interface-hooks.js';
import { Ownership } from '#dataplane/attach/ownership.js';
import { Pins } from '#dataplane/attach/pins.js';
import { Forwarding } from '#dataplane/forwarding/forwarding.js';
import { Guard } from '#dataplane/guard/nftables-guard.js';
import { Translation } from '#dataplane/translation/translation.js';
import type { FixedOptions } from '#dataplane/upgrade/successor.js';
import type { Descriptors } from '#libc/descriptors.js';
import { objectOptions } from './object-options.js';

/** The parts of the kernel's state that a datapath changes, also before it is open. */
export type KernelParts = {
  readonly objectOptions: FixedOptions;
  readonly pins: Pins;
  readonly ownership: Ownership;
  readonly hooks: Hooks;
  readonly guard: Guard;
  readonly forwarding: Forwarding;
  readonly translation: Translation;
};

export function kernelParts(options: DatapathOptions, descriptors: Descriptors): KernelParts {
  const pins = new Pins(options.pinPath);
  const hooks = new Hooks(options, pins);
  const guard = new Guard(options);
  const forwarding = new Forwarding(options, hooks, guard);
  return {
    objectOptions: objectOptions(options),
    pins,
    ownership: new Ownership(options.pinPath, descriptors),
    hooks,
    guard,
    forwarding,
    translation: new Translation(options, guard, pins, forwarding),
  };
}
