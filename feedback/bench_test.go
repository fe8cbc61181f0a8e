package feedback_test

import (
	"strings"
	"testing"
)

// BenchmarkCodes is the price of a look at an answer that is no refusal, which
// nearly all are: 40 KB of JSON, in the order that makes it read all.
func BenchmarkCodes(b *testing.B) {
	body := `{"errcode":0,"errmsg":"ok","result":[` +
		strings.TrimSuffix(strings.Repeat(`{"userid":"0123456789","name":"é\"","dept":[1,22,333]},`, 700), ",") + `]}`
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		requireCloses(b, 0, dingtalk.Answer(jsonAnswer(200, body)))
	}
}
