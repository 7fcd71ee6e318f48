import { absentPart } from './absent-part.js';

export const servicePlaneChart = absentPart(
  'servicePlane',
  'service_plane',
  'servicePlane',
  'service_plane',
  'connections that reach a TLS rule fail',
);
