/**
 * The reasons why the bytes of a message are not acceptable as HTTP. The number is the status that the client
 * receives if the fault is in a request. A fault in a response head gives the status 502.
 */
export const FAULT_STATUS = {
  absolute_form_mismatch: 400,
  ambiguous_names: 400,
  asterisk_form: 400,
  bare_cr: 400,
  bare_lf: 400,
  chunk_end: 400,
  chunk_extension: 400,
  chunk_size: 400,
  conflicting_lengths: 400,
  connection_field: 400,
  connection_option: 400,
  content_length: 400,
  control_character: 400,
  expectation: 417,
  field_name: 400,
  forbidden_trailer: 400,
  head_too_long: 431,
  host_is_not_sni: 421,
  invalid_host: 400,
  leading_space: 400,
  method: 400,
  no_host: 400,
  nul: 400,
  obs_fold: 400,
  pseudo_header: 400,
  refused_method: 501,
  repeated_content_length: 400,
  request_line: 400,
  space_before_colon: 400,
  status_line: 400,
  target: 400,
  too_many_fields: 431,
  transfer_encoding: 400,
  two_hosts: 400,
  unasked_upgrade: 400,
  userinfo: 400,
  version: 505,
} as const;

export type HttpFault = keyof typeof FAULT_STATUS;

export type Refusal = { readonly fault: HttpFault };
