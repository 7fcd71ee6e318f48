export const DIRECTIONS = ['ingress', 'egress'] as const;
export type Direction = (typeof DIRECTIONS)[number];
