package v1

// Clock is a guest's clock and timers.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.utc) && has(self.timezone))",message="at most one of utc and timezone may be set"
type Clock struct {
	// The clock shows UTC.
	// +optional
	UTC *ClockUTC `json:"utc,omitempty"`
	// Time zone of the clock, such as Europe/Berlin.
	// +optional
	Timezone *string `json:"timezone,omitempty"`
	// Timers of the guest.
	// +optional
	Timer *Timer `json:"timer,omitempty"`
}

// ClockUTC is a clock that shows UTC.
type ClockUTC struct {
	// Seconds that the clock differs from UTC by. If unset, the guest's changes to its clock
	// are kept over restarts.
	// +optional
	OffsetSeconds *int64 `json:"offsetSeconds,omitempty"`
}

// Timer is the timers of a guest.
type Timer struct {
	// High Precision Event Timer.
	// +optional
	HPET *HPETTimer `json:"hpet,omitempty"`
	// KVM's clock.
	// +optional
	KVM *TimerState `json:"kvm,omitempty"`
	// Programmable interval timer.
	// +optional
	PIT *PITTimer `json:"pit,omitempty"`
	// Real-time clock.
	// +optional
	RTC *RTCTimer `json:"rtc,omitempty"`
	// Hyper-V's reference time, for Windows.
	// +optional
	Hyperv *TimerState `json:"hyperv,omitempty"`
}

// TimerState is a timer that the guest has or doesn't have.
type TimerState struct {
	// Whether the guest has the timer. A timer that is named is there unless this is false.
	// +optional
	Present *bool `json:"present,omitempty"`
}

// HPETTimer is the High Precision Event Timer.
type HPETTimer struct {
	TimerState `json:",inline"`
	// What becomes of ticks that could not be delivered in time: delay, catchup, merge or
	// discard.
	// +optional
	// +kubebuilder:validation:Enum="";delay;catchup;merge;discard
	TickPolicy TickPolicy `json:"tickPolicy,omitempty"`
}

// PITTimer is the programmable interval timer.
type PITTimer struct {
	TimerState `json:",inline"`
	// What becomes of ticks that could not be delivered in time: delay, catchup or discard.
	// +optional
	// +kubebuilder:validation:Enum="";delay;catchup;discard
	TickPolicy TickPolicy `json:"tickPolicy,omitempty"`
}

// RTCTimer is the real-time clock.
type RTCTimer struct {
	TimerState `json:",inline"`
	// What becomes of ticks that could not be delivered in time: delay or catchup.
	// +optional
	// +kubebuilder:validation:Enum="";delay;catchup
	TickPolicy TickPolicy `json:"tickPolicy,omitempty"`
	// What the clock follows: guest (time while the guest runs) or wall (time of the host).
	// +optional
	// +kubebuilder:validation:Enum="";guest;wall
	Track string `json:"track,omitempty"`
}

// TickPolicy says what becomes of ticks that could not be delivered in time.
type TickPolicy string

// The policies for late ticks: deliver them at the usual rate, faster, as one, or not at all.
const (
	TickDelay   TickPolicy = "delay"
	TickCatchup TickPolicy = "catchup"
	TickMerge   TickPolicy = "merge"
	TickDiscard TickPolicy = "discard"
)
