import type { Datapath } from '#contracts/datapath/datapath.js';

/**
 * Selects the events that the BPF program sends to Weir. While performance mode is disabled, the BPF program
 * sends no events (D34). After `setFlowsWanted(false)` it sends no flow events either.
 */
export class EventSwitch {
  readonly #datapath: Pick<Datapath, 'setEventsWanted'> | null;
  #enabled = false;
  #flowsWanted = true;

  /** `datapath` is null on a node without a dataplane; then the switch has no effect. */
  constructor(datapath: Pick<Datapath, 'setEventsWanted'> | null) {
    this.#datapath = datapath;
  }

  async setEnabled(enabled: boolean): Promise<void> {
    this.#enabled = enabled;
    await this.#set();
  }

  async setFlowsWanted(wanted: boolean): Promise<void> {
    this.#flowsWanted = wanted;
    await this.#set();
  }

  async #set(): Promise<void> {
    await this.#datapath?.setEventsWanted({ packets: this.#enabled, flows: this.#enabled && this.#flowsWanted });
  }
}
