package conversation

// State tells how a conversation stands towards what its servers offer now. It is derived, never stored.
type State string

// The states of a conversation. Only StateStale and StateFailed count towards the age of the oldest stale conversation.
const (
	// StateCurrent conversations have what their servers offer.
	StateCurrent State = "current"
	// StateStale conversations need a refresh.
	StateStale State = "stale"
	// StateFailed conversations need a refresh, and the last attempt failed.
	StateFailed State = "failed"
	// StateParked conversations need a refresh, but their agent server is away or their sandbox is paused.
	StateParked State = "parked"
	// StateDormant conversations have old tools but were idle so long that their agent server will build fresh ones; they aren't woken.
	StateDormant State = "dormant"
	// StateUnsupported conversations have old tools at an agent server that has no refresh action.
	StateUnsupported State = "unsupported"
)

// States returns every state, in the order in which people should read them.
func States() []State {
	return []State{StateCurrent, StateStale, StateFailed, StateParked, StateDormant, StateUnsupported}
}

// Condition is what the last refresh attempt said about a conversation that still needs one.
type Condition string

// The conditions; none means that no attempt has failed since the last success.
const (
	ConditionNone        Condition = ""
	ConditionFailed      Condition = "failed"
	ConditionParked      Condition = "parked"
	ConditionUnsupported Condition = "unsupported"
)

// How tells how the applied generation of a conversation is known.
type How string

// The ways to know.
const (
	// HowNone means that nothing is known.
	HowNone How = ""
	// HowObserved means that the conversation was seen to list the tools through the sidecar.
	HowObserved How = "observed"
	// HowAcknowledged means that the agent server said so.
	HowAcknowledged How = "acknowledged"
	// HowCreated means that the conversation was created after the generation had settled.
	HowCreated How = "created"
	// HowLost means that its session was lost, so that what it has is unknown until a refresh.
	HowLost How = "lost"
)

// Source tells how a conversation was registered.
type Source string

// The sources.
const (
	SourceURL       Source = "url"
	SourceHeader    Source = "header"
	SourceDiscovery Source = "discovery"
	SourceWebhook   Source = "webhook"
	SourceConfig    Source = "config"
	SourceAdmin     Source = "admin"
)
