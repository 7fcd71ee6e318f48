import { type Observable, observeOn, queueScheduler, Subject, share } from 'rxjs';

export type Bus<Message> = {
  publish(message: Message): void;
  readonly messages: Observable<Message>;
};

/**
 * Delivers every message to all subscribers before the next message, also if a subscriber publishes while it
 * handles one. The queue must stand before `share`: one queue per subscriber would reorder messages.
 */
export function createBus<Message>(): Bus<Message> {
  const inbox = new Subject<Message>();
  return {
    publish: (message) => inbox.next(message),
    messages: inbox.pipe(observeOn(queueScheduler), share()),
  };
}
