/// Violations of the hub's internal rules, which only a defect of the hub can cause.
///
/// Code that detects a violation gives up the affected connection, loop or answer, and the hub continues. An answer
/// that is given up never permits anything. Operators see a counter, and the violated rule in the log.
public enum Impossible {
    /// Room (module) in which a rule was violated.
    public enum Room: String, MetricLabel {
        case asking, catalog, judging, authorizing, messages, delivery

        public static let labelName = "room"
    }

    /// Violations by room. This is the only counter that belongs to the whole process and is not passed to the code
    /// that uses it. A defect of the hub belongs to no project, and the code that detects it often does not know its
    /// project.
    public static let states = CounterFamily<Room>(
        "tidewire_impossible_states_total",
        "Violations of the hub's internal rules, which only a defect of the hub can cause. The hub gave up the "
            + "affected work. Never expected.")

    public static func happened(_ rule: StaticString, in room: Room) {
        states[room].add()
        Log.shared.error(
            "internal error: an invariant of the hub does not hold; the hub gave up the affected work. Please report it",
            [.reason("\(rule)")])
    }
}
