package cleaner

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// keyHash is what the map of keys knows of a key.
type keyHash [2]uint64

// hasher makes 128-bit hashes of keys: SipHash-2-4 (Aumasson and Bernstein) with the longer output. Two keys with the same
// hash would cost a record. With a random key that nobody is shown, whoever chooses the record keys can do no better than
// chance, which is 2^-128 for two of them: what a hash without a key would give, at a third of the time of SHA-256. Hashes
// are never stored: those of another process are others.
type hasher struct{ k0, k1 uint64 }

func newHasher() hasher {
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails
	return hasherOf(&key)
}

func hasherOf(key *[16]byte) hasher {
	return hasher{k0: binary.LittleEndian.Uint64(key[:]), k1: binary.LittleEndian.Uint64(key[8:])}
}

// hash hashes a key.
func (h hasher) hash(key []byte) keyHash {
	v0, v1 := h.k0^0x736f6d6570736575, h.k1^0x646f72616e646f6d^0xee
	v2, v3 := h.k0^0x6c7967656e657261, h.k1^0x7465646279746573
	word := uint64(len(key)) << 56 // the last one: the rest of the key and its length
	for len(key) >= 8 {
		m := binary.LittleEndian.Uint64(key)
		v3 ^= m
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0 ^= m
		key = key[8:]
	}
	for i, c := range key {
		word |= uint64(c) << (8 * i)
	}
	v3 ^= word
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= word
	v2 ^= 0xee
	v0, v1, v2, v3 = sipRounds(v0, v1, v2, v3)
	first := v0 ^ v1 ^ v2 ^ v3
	v1 ^= 0xdd
	v0, v1, v2, v3 = sipRounds(v0, v1, v2, v3)
	return keyHash{first, v0 ^ v1 ^ v2 ^ v3}
}

// sipRounds are those that end each half of the hash.
func sipRounds(v0, v1, v2, v3 uint64) (w0, w1, w2, w3 uint64) {
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return v0, v1, v2, v3
}

// sipRound is written to be inlined, with its state in registers.
func sipRound(v0, v1, v2, v3 uint64) (w0, w1, w2, w3 uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32) + v3
	v2 += v1
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	return v0, v1, bits.RotateLeft64(v2, 32), v3
}
