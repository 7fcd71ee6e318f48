/** Where connections that the service plane has decided are left to the datapath: programs and maps by their ids in the kernel. */
export type JoinPoint = {
  readonly program: number;
  readonly joins: number;
  readonly joiners: number;
  /** Of packets that pass unjudged. */
  readonly mark: number;
  /** How long a connection may be still, and how long one that has ended is kept. */
  readonly idleMs: number;
  readonly endedMs: number;
};
