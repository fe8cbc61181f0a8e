package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fleetthrottle/throttle/internal/svg"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
)

// words are the texts of the picture, in one language.
type words struct {
	file, title, note string
	without, with     string
	banned            string
	some, everyone    string // formats
	limit, second     string
}

var languages = []words{
	{
		file: "without-with.svg", title: "The same job, without and with throttle",
		note:    "Calls of one API in each second. 4 nodes with 16 workers each pull an address book of %d people.",
		without: "without", with: "with throttle", banned: "banned: five minutes of silence",
		some: "%d people, %d calls refused", everyone: "%d people in %.1f s, %d calls refused",
		limit: "limit: %d a second", second: "second",
	},
	{
		file: "without-with.zh.svg", title: "同一个任务，不用和用 throttle",
		note:    "同一个接口每秒的调用次数。4 个节点，各 16 个 worker，拉取 %d 人的通讯录。",
		without: "不用", with: "用 throttle", banned: "被封禁：五分钟内一次也调不通",
		some: "只拉到 %d 人，%d 次调用被拒绝", everyone: "%.1[2]f 秒拉完 %[1]d 人，%[3]d 次调用被拒绝",
		limit: "上限：每秒 %d 次", second: "秒",
	},
}

// The measures of the picture of two halves.
const (
	halfWidth, halvesHeight = 392.0, 330.0
	halfLeft, halfRight     = 44.0, 16.0
	halfTop, halfBottom     = 122.0, 62.0
	halfSeconds             = 9
)

const halvesRules = `  .half { font-size: 14px; font-weight: 600 }
  .base { stroke: #8c959f }
  .limit { stroke: #b35900; stroke-width: 1.5; stroke-dasharray: 6 4 }
  .mark { fill: #b35900; text-anchor: end }
  .tick { fill: #59636e; text-anchor: middle }
  .taken { fill: #0969da }
  .refused { fill: #cf222e }
  .ban { fill: #cf222e; fill-opacity: 0.12 }
`

const halvesDark = `    .base { stroke: #656c76 }
    .limit { stroke: #f0883e }
    .mark { fill: #f0883e }
    .tick { fill: #9198a1 }
    .taken { fill: #4493f8 }
    .refused { fill: #f85149 }
`

// drawHalves writes the picture of a job without the library and of the same job with it, in each
// language. Both halves have the same scale.
func drawHalves(dir string, without, with report) error {
	for _, w := range languages {
		d := svg.New(2*halfWidth+2*svg.Margin, halvesHeight, w.title, fmt.Sprintf(w.note, with.people), halvesRules, halvesDark)
		high := max(without.upstream.Most(userList, time.Second), dingtalk.Standard.PerSecond)
		without.half(d, w, svg.Margin, high)
		with.half(d, w, svg.Margin+halfWidth, high)
		if err := os.WriteFile(filepath.Join(dir, w.file), []byte(d.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// half draws the calls of each second of one job from x on.
func (r report) half(d *svg.Drawing, w words, x float64, high int) {
	limit := dingtalk.Standard.PerSecond
	left, right, base := x+halfLeft, x+halfWidth-halfRight, halvesHeight-halfBottom
	slot := (right - left) / halfSeconds
	y := func(calls int) float64 { return base - (base-halfTop)*float64(calls)/float64(high) }
	name, sum := w.with, fmt.Sprintf(w.everyone, len(r.found), r.took.Seconds(), r.refused())

	if r.unthrottled {
		name, sum = w.without, fmt.Sprintf(w.some, len(r.found), r.refused())
		d.Rect("ban", svg.Box{X: left + slot, Y: halfTop, Width: right - left - slot, Height: base - halfTop})
		d.Text("refused", left+slot+12, (halfTop+base)/2, w.banned)
	}

	d.Text("half", x, 84, name)
	d.Text("note", x, 104, sum)

	for second, calls := range r.perSecond(userList) {
		bar := svg.Box{X: left + slot*(float64(second)+0.15), Width: slot * 0.7}
		taken := min(calls, limit)
		bar.Y, bar.Height = y(taken), base-y(taken)
		d.Rect("taken", bar)

		if calls > limit {
			bar.Y, bar.Height = y(calls), y(limit)-y(calls)
			d.Rect("refused", bar)
		}
	}

	d.Line("limit", left, y(limit), right, y(limit))
	d.Text("mark", right, y(limit)-6, fmt.Sprintf(w.limit, limit))
	d.Line("base", left, base, right, base)
	d.Text("tick", left-20, y(high)+4, fmt.Sprint(high))
	d.Text("tick", left-20, base+4, "0")

	for second := range halfSeconds {
		d.Text("tick", left+slot*(float64(second)+0.5), base+18, fmt.Sprint(second+1))
	}

	d.Text("tick", (left+right)/2, base+38, w.second)
}
