import { type Observable, observeOn, queueScheduler, Subject, share } from 'rxjs';

export type Bus<Message> = {
  publish(message: Message): void;
  readonly messages: Observable<Message>;
};

/**
 * Delivers each message to all subscribers before the next message, also if a subscriber publishes during its
 * call. `observeOn` must precede `share`: a separate queue for each subscriber would change the order of
 * messages.
 */
export function createBus<Message>(): Bus<Message> {
  const inbox = new Subject<Message>();
  return {
    publish: (message) => inbox.next(message),
    messages: inbox.pipe(observeOn(queueScheduler), share()),
  };
}
