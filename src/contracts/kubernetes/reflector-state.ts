/**
 * The phases of a reflector, which lists and watches objects of a Kubernetes API server.
 * - `connecting`: the server has not responded yet.
 * - `listing`: the server sends a list. Until the list is complete, the objects of the previous list stay in
 *   force.
 * - `watching`: the list is complete, and the server sends changes.
 * - `silent`: the server does not respond.
 * - `unauthorized`: the server refuses the token (401). `forbidden`: it refuses the access (403).
 * - `backing_off`: a request failed for another reason. The reflector tries again.
 */
export type ReflectorPhase =
  | 'connecting'
  | 'listing'
  | 'watching'
  | 'silent'
  | 'unauthorized'
  | 'forbidden'
  | 'backing_off';
