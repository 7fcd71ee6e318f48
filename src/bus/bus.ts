import { type Observable, observeOn, queueScheduler, Subject, share } from 'rxjs';

export type Bus<Message> = {
  publish(message: Message): void;
  readonly messages: Observable<Message>;
};

/**
 * Creates a bus. The bus delivers each message to all subscribers before it delivers the next message, also
 * if a subscriber publishes a message while it handles one. `observeOn` must precede `share`: with a
 * separate queue for each subscriber, the order of messages could change.
 */
export function createBus<Message>(): Bus<Message> {
  const inbox = new Subject<Message>();
  return {
    publish: (message) => inbox.next(message),
    messages: inbox.pipe(observeOn(queueScheduler), share()),
  };
}
