import type { EventsWanted } from '#contracts/datapath/datapath.js';

export const ALL_EVENTS: EventsWanted = { packets: true, flows: true };
