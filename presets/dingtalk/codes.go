package dingtalk

import (
	"maps"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// codes says for how long each code closes a budget of one kind. Those that are
// missing are another kind's business.
type codes map[string]time.Duration

// and returns the codes of several kinds of budgets that are one.
func (c codes) and(others ...codes) codes {
	all := maps.Clone(c)
	for _, other := range others {
		maps.Copy(all, other)
	}
	return all
}

// numbers returns the codes of the old API.
func (c codes) numbers() codes { return c.only(true) }

// words returns the codes of the new API.
func (c codes) words() codes { return c.only(false) }

func (c codes) only(numbers bool) codes {
	some := make(codes)
	for code, lasts := range c {
		if numbers == (strings.Trim(code, "0123456789") == "") {
			some[code] = lasts
		}
	}
	return some
}

// What each code closes, from DingTalk's lists of codes. How long is the unit of
// its window, unless the answer prints an end.
var (
	addressCodes    = codes{"90001": time.Second, "90017": time.Minute}
	everybodysCodes = codes{"90002": time.Second, "QpsLimitForApi": time.Second}
	companyCodes    = codes{"90003": time.Second}
	companyAPICodes = codes{"90005": time.Minute}
	appCodes        = codes{"90004": time.Second, "90011": time.Minute}
	appAPICodes     = codes{
		"90018": time.Second, "QpsLimitForAppkeyAndApi": time.Second,
		"90006": time.Minute, "QpmLimitForAppkeyAndApi": time.Minute,
		"90012": time.Minute,

		// Products of the new API that have codes of their own.
		"qps.exceed.limit": time.Second, "request.overlimit": time.Second,
		"oaplus.query.limit": time.Second, "send.too.fast": time.Second,
		"failure.operation.requestTooFast":  time.Second,
		"failure.operation.tooManyVisitors": time.Second,

		// A limit that nobody has described closes the narrowest budget.
		"*QpsLimitFor*": time.Second, "*QpmLimitFor*": time.Minute,
		"QpsLimitForApi":                  feedback.NotRefused,
		"QpsLimitForSuitekeyAndOrgAndApi": feedback.NotRefused,
		"QpmLimitForSuitekeyAndOrgAndApi": feedback.NotRefused,
	}

	isvCodes             = codes{"90009": time.Minute}
	isvAPICodes          = codes{"90010": time.Minute}
	isvCompanyCodes      = codes{"90007": time.Minute}
	isvCompanyAPICodes   = codes{"90008": time.Minute}
	suiteCompanyCodes    = codes{"90013": time.Minute}
	suiteCompanyAPICodes = codes{
		"90019": time.Second, "QpsLimitForSuitekeyAndOrgAndApi": time.Second,
		"90014": time.Minute, "QpmLimitForSuitekeyAndOrgAndApi": time.Minute,
	}

	monthCodes   = codes{"90020": throttle.MaxPenalty, "ApiCountLimitForOrg": throttle.MaxPenalty}
	webhookCodes = codes{"90030": throttle.MaxPenalty}
	robotCodes   = codes{"130101": robotTime, "410100": robotTime, "660026": robotTime}
)

// robotTime is how long a robot stays closed.
const robotTime = 10 * time.Minute
