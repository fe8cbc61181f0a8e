package dingtalk

import (
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
)

// A subject identifies the budget that a refusal closes.
type subject uint

const (
	nothing  subject = iota
	address          // an address
	everyone         // everybody's API
	company
	companyAPI // a company and an API, which on the new host is a path if it is not known
	app
	appAPI
	isv          // a vendor
	isvAPI       // a vendor and an API
	isvCompany   // a vendor and a company
	isvAPIOf     // a vendor, a company and an API
	suiteCompany // a suite and a company
	suiteAPIOf   // a suite, a company and an API
	month        // a company's month

	// Subjects of which only some requests have a budget.
	robot        // a robot, by its webhook or by its code
	webhookMonth // a company's month of webhooks
	ding         // a robot's DINGs
	notices      // an application's work notices
	noticesOf    // a company's work notices
	noticesSuite // a suite's work notices, to all companies
	noticesToAll // work notices to all of a company
	person       // one person's day of an API
)

// A limit is one of DingTalk's limits that a code names.
type limit struct {
	about subject
	lasts feedback.Reader // how long the budget is closed, unless the answer says it
	ends  feedback.Reader // the end that an answer may print; optional

	uncounted bool // a call that this limit refuses does not count for the month
	ifTooFast bool // the code means a limit only if the answer's text speaks of a pace
	unsure    bool // of an answer with ifTooFast: its text does not speak of a pace
}

var (
	second   = feedback.For(time.Second)
	minute   = feedback.For(time.Minute)
	tomorrow = feedback.UntilMidnight(beijing)

	// nextMonth ends on the 1st, or after [throttle.MaxPenalty]: the call that follows is refused again.
	nextMonth = feedback.UntilFirst(beijing)
)

// robotTime is how long a robot stays closed.
const robotTime = 10 * time.Minute

// beijing is the zone of every time that DingTalk prints, and of its days and months.
var beijing = time.FixedZone("UTC+8", 8*60*60)

// numbers are the codes of the old API, from DingTalk's lists of codes. Each closes its budget for the unit
// of its window, unless the answer prints an end.
var numbers = map[string]limit{
	"90001": {about: address, lasts: second, ends: printed},
	"90002": {about: everyone, lasts: second, ends: printed, uncounted: true},
	"90003": {about: company, lasts: second, ends: printed},
	"90004": {about: app, lasts: second, ends: printed},
	"90005": {about: companyAPI, lasts: minute, ends: printed},
	"90006": {about: appAPI, lasts: minute, ends: printed},
	"90007": {about: isvCompany, lasts: minute, ends: printed},
	"90008": {about: isvAPIOf, lasts: minute, ends: printed},
	"90009": {about: isv, lasts: minute, ends: printed},
	"90010": {about: isvAPI, lasts: minute, ends: printed},
	"90011": {about: app, lasts: minute, ends: printed},
	"90012": {about: appAPI, lasts: minute, ends: printed},
	"90013": {about: suiteCompany, lasts: minute, ends: printed},
	"90014": {about: suiteAPIOf, lasts: minute, ends: printed},
	"90017": {about: address, lasts: minute, ends: printed},
	"90018": {about: appAPI, lasts: second, ends: printed, uncounted: true},
	"90019": {about: suiteAPIOf, lasts: second, ends: printed},
	"90020": {about: month, lasts: nextMonth},
	"90030": {about: webhookMonth, lasts: nextMonth},

	// "Calls of the API above the limit" is all it says: a minute is a guess on the long side.
	"45009": {about: appAPI, lasts: minute},

	// Robots. 660026 also stands for failures of a robot that are unrelated to its pace.
	"130101": {about: robot, lasts: feedback.For(robotTime)},
	"410100": {about: robot, lasts: feedback.For(robotTime)},
	"660026": {about: robot, lasts: feedback.For(robotTime), ifTooFast: true},

	// Service numbers, tasks, and messages.
	"800055": {about: companyAPI, lasts: second},
	"800017": {about: person, lasts: tomorrow},
	"820011": {about: companyAPI, lasts: second},
	"854002": {about: person, lasts: tomorrow},
	"41045":  {about: noticesToAll, lasts: tomorrow},
	"41046":  {about: noticesToAll, lasts: tomorrow},
	"41047":  {about: noticesOf, lasts: minute},
	"41048":  {about: noticesOf, lasts: minute},
	"143103": {about: notices, lasts: minute},
	"143104": {about: noticesOf, lasts: minute},
	"143203": {about: notices, lasts: minute},
	"143204": {about: noticesSuite, lasts: minute},
}

// words are the codes of the new API, in lower case, without forbidden.
var words = map[string]limit{
	"qpslimitforapi":                  {about: everyone, lasts: second, uncounted: true},
	"qpslimitforappkeyandapi":         {about: appAPI, lasts: second, uncounted: true},
	"qpmlimitforappkeyandapi":         {about: appAPI, lasts: minute},
	"qpslimitforsuitekeyandorgandapi": {about: suiteAPIOf, lasts: second},
	"qpmlimitforsuitekeyandorgandapi": {about: suiteAPIOf, lasts: minute},
	"apicountlimitfororg":             {about: month, lasts: nextMonth},

	// Robots' messages of the new API.
	"send.bytoken.toofast": {about: robot, lasts: second},
	"send.too.fast":        {about: robot, lasts: second},
	"send.toofast":         {about: robot, lasts: second},
	"too.many.group":       {about: robot, lasts: second},
	"too.many.people":      {about: robot, lasts: second},
	"toomuch.msg":          {about: ding, lasts: minute},

	// Products whose codes say "too fast", "too often" or "too many at once".
	"request.too.fast":     {about: appAPI, lasts: second},
	"request.too.tast":     {about: appAPI, lasts: second}, // so spelt
	"request.too.frequent": {about: appAPI, lasts: second},
	"requesttoomuch":       {about: appAPI, lasts: second},
	"request.overlimit":    {about: appAPI, lasts: second},
	"request.often":        {about: appAPI, lasts: second},
	"request.limit":        {about: appAPI, lasts: second}, // of the model behind it
	"invokefrequency":      {about: appAPI, lasts: second},
	"invokefrequentyly":    {about: appAPI, lasts: second}, // so spelt
	"oaplus.query.limit":   {about: appAPI, lasts: second},
	"qps.exceed.limit":     {about: appAPI, lasts: second},
	"system.freq.limit":    {about: appAPI, lasts: second}, // of medals, which allow no concurrency
	"systemerror.busy":     {about: appAPI, lasts: second}, // of CRM
	"failure.operation.operatingfrequencytoofast": {about: appAPI, lasts: second},
	"failure.operation.requesttoofast":            {about: appAPI, lasts: second},
	"failure.operation.toomanyvisitors":           {about: appAPI, lasts: second},
	"autoflowliketriggerratelimited":              {about: appAPI, lasts: second},
	"integrated.concurrency.error":                {about: appAPI, lasts: second}, // one in flight
	"operationconcurrentcontrol":                  {about: appAPI, lasts: second},
	"throttling.device":                           {about: companyAPI, lasts: second},

	// Tasks: of the executor or of the company.
	"todo.taskcreate.flowcontrolerror": {about: companyAPI, lasts: second},

	// The list of codes has both meanings: load, and called too often.
	"system.busy": {about: appAPI, lasts: second},
	"systembusy":  {about: appAPI, lasts: second},
	"servicebusy": {about: appAPI, lasts: second},

	// A day, or longer than a window.
	"integrated.qps.exceed": {about: companyAPI, lasts: tomorrow},
	"request.illegal":       {about: companyAPI, lasts: tomorrow},
	"daily.call.limit":      {about: companyAPI, lasts: tomorrow},
	"flowlimit":             {about: person, lasts: tomorrow},
	"updatespeedfast":       {about: companyAPI, lasts: feedback.For(5 * time.Minute)},
}

// forbidden is how the codes of the platform's own limits begin. They come without it, too.
const forbidden = "forbidden.accessdenied."

// limitOf returns the limit of a code of the new API: the one in words or, for any other code with "QpsLimitFor" or "QpmLimitFor", a second or a minute of
// an application and an API. All other codes have the zero limit.
func limitOf(word string) limit {
	word = strings.TrimPrefix(strings.ToLower(word), forbidden)
	if l, ok := words[word]; ok {
		return l
	}
	switch {
	case strings.Contains(word, "qpslimitfor"):
		return limit{about: appAPI, lasts: second}
	case strings.Contains(word, "qpmlimitfor"):
		return limit{about: appAPI, lasts: minute}
	}
	return limit{}
}
