package vfs

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestOnlyZerosFindsWhatIsNotAndWhatIsMissing(t *testing.T) {
	b := make([]byte, 2*zerosChunkBytes+5)
	b[3], b[len(b)-1] = 1, 1
	f := bytes.NewReader(b)
	end := int64(len(b))
	for _, c := range []struct {
		from, to int64
		want     bool
		err      error
	}{
		{0, 3, true, nil},
		{0, 4, false, nil},
		{3, 4, false, nil},
		{4, end - 1, true, nil},
		{4, end, false, nil},
		{7, 7, true, nil},
		{end, end + 1, false, io.EOF},
	} {
		if got, err := OnlyZeros(f, c.from, c.to); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%d to %d: %t, %v", c.from, c.to, got, err)
		}
	}
}
