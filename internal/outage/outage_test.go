package outage

import (
	"slices"
	"testing"
	"time"
)

func TestOutageIsSaidEverMoreSeldomAndItsEndOnce(t *testing.T) {
	start := time.Unix(100, 0)
	o := Outage{Grace: 2 * time.Second}
	if say, _ := o.Ends(start); say {
		t.Error("the end of nothing was said")
	}
	var got []int
	for second := range 160 {
		say, lasted := o.Fails(start.Add(time.Duration(second) * time.Second))
		if say {
			got = append(got, second)
		}
		if lasted != time.Duration(second)*time.Second {
			t.Fatalf("lasted %s after %d s", lasted, second)
		}
	}
	if want := []int{2, 12, 32, 72, 132}; !slices.Equal(got, want) {
		t.Errorf("said at %v, want %v", got, want)
	}
	if say, lasted := o.Ends(start.Add(200 * time.Second)); !say || lasted != 200*time.Second {
		t.Errorf("end: %v after %s", say, lasted)
	}
	if say, _ := o.Ends(start.Add(201 * time.Second)); say {
		t.Error("the end was said twice")
	}
	o.Fails(start.Add(300 * time.Second))
	if say, _ := o.Ends(start.Add(301 * time.Second)); say {
		t.Error("the end of an outage within its grace was said")
	}
	if say, _ := (&Outage{}).Fails(start); !say {
		t.Error("without grace the first failure is said")
	}
}
