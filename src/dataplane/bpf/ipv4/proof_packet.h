/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef WEIR_IPV4_PROOF_PACKET_H
#define WEIR_IPV4_PROOF_PACKET_H

/* Declares a pointer to a cleared struct packet, in which the program `weir_prove` classifies a packet. The
 * struct is on the stack of the function.
 */
#define PROOF_PACKET(name) struct packet name##_memory = {}, *name = &name##_memory

#endif
