package cleaner

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"
)

// TestHashIsSipHash compares with the outputs of the authors of SipHash, and for longer inputs of OpenSSL, for the key
// 00 01 .. 0f and the inputs 00 01 ..
func TestHashIsSipHash(t *testing.T) {
	var key [16]byte
	for i := range key {
		key[i] = byte(i)
	}
	h := hasherOf(&key)
	input := make([]byte, 64)
	for i := range input {
		input[i] = byte(i)
	}
	for n, want := range map[int]string{
		0:  "a3817f04ba25a8e66df67214c7550293",
		1:  "da87c1d86b99af44347659119b22fc45",
		2:  "8177228da4a45dc7fca38bdef60affe4",
		3:  "9c70b60c5267a94e5f33b6b02985ed51",
		7:  "a1f1ebbed8dbc153c0b84aa61ff08239",
		8:  "3b62a9ba6258f5610f83e264f31497b4",
		9:  "264499060ad9baabc47f8b02bb6d71ed",
		15: "5493e99933b0a8117e08ec0f97cfc3d9",
		16: "6ee2a4ca67b054bbfd3315bf85230577",
		36: "3dc47d1f29c448461e9e76ed904f6711",
		63: "5150d1772f50834a503e069a973fbd7c",
	} {
		sum := h.hash(input[:n])
		if got := hex.EncodeToString(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, sum[0]), sum[1])); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	h := newHasher()
	for _, n := range []int{8, 17, 36, 100} {
		k := make([]byte, n)
		b.Run(fmt.Sprintf("%d bytes", n), func(b *testing.B) {
			for i := range b.N {
				k[0] = byte(i)
				k[1] = byte(h.hash(k)[0])
			}
		})
	}
}
