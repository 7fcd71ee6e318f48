import type { Integration } from '#store/store-types.js';

export const INTEGRATION: Integration = {
  name: 'prod',
  kind: 'kubernetes',
  api_server_url: 'https://10.0.0.1',
  ca_cert_pem: 'pem',
  service_account_token: 'token',
};
