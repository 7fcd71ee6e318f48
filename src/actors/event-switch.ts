import type { Datapath } from '#contracts/datapath.js';

/**
 * Selects the events that the kernel sends: none while performance mode is disabled (D34), and flow events
 * only while a reader wants them.
 */
export class EventSwitch {
  readonly #datapath: Pick<Datapath, 'setEventsWanted'> | null;
  #enabled = false;
  #flowsWanted = true;

  /** Null without a dataplane. */
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
