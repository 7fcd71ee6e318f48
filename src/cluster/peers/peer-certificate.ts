import {
  BehaviorSubject,
  exhaustMap,
  filter,
  firstValueFrom,
  ignoreElements,
  interval,
  type Observable,
  timer,
} from 'rxjs';
import type { Membership } from '#cluster/members/membership.js';
import { EtcdError } from '../etcd/etcd-error.js';
import { fingerprintOf, type PeerIdentity } from './peer-identity.js';

/** Returns the certificate and key that the node uses from now on: `present`, or a renewed pair. */
export type NextIdentity = (present: PeerIdentity | null) => PeerIdentity;

const CHECK_MS = 60_000;
/**
 * The time in milliseconds to wait until the other nodes know a new fingerprint. It exceeds the time for
 * which a node uses a list of members that it has read (`FRESH_MS`).
 */
const KNOWN_MS = 2_000;

/** The certificate with which this node authenticates to other nodes. It is renewed while the node runs. */
export class PeerCertificate {
  readonly #next: NextIdentity;
  readonly #identity: BehaviorSubject<PeerIdentity>;

  constructor(next: NextIdentity) {
    this.#next = next;
    this.#identity = new BehaviorSubject(next(null));
  }

  /** Emits the present certificate and key of this node, and each renewed pair. */
  get identity(): Observable<PeerIdentity> {
    return this.#identity;
  }

  get present(): PeerIdentity {
    return this.#identity.value;
  }

  get fingerprint(): string {
    return fingerprintOf(this.present.cert);
  }

  /**
   * Renews the certificate in time while there is a subscriber. Emits nothing. `isNeeded`: whether the
   * present certificate must not be replaced, for example because a join token contains its fingerprint.
   */
  renewals(membership: Membership, isNeeded: () => boolean = () => false): Observable<never> {
    return interval(CHECK_MS).pipe(
      filter(() => !isNeeded()),
      exhaustMap(() => this.#renew(membership)),
      ignoreElements(),
    );
  }

  /** Announces a renewed certificate, and uses it only after the other nodes know its fingerprint. */
  async #renew(membership: Membership): Promise<void> {
    try {
      const next = this.#next(this.present);
      if (next === this.present) return;
      const renewed = fingerprintOf(next.cert);
      await membership.announce({ certificates: [this.fingerprint, renewed] });
      await firstValueFrom(timer(KNOWN_MS));
      this.#identity.next(next);
      await firstValueFrom(timer(KNOWN_MS));
      await membership.announce({ certificates: [renewed] });
    } catch (failure) {
      // If etcd cannot be reached, the certificate is renewed later.
      if (!(failure instanceof EtcdError)) throw failure;
    }
  }
}
