/// Violations of the hub's internal rules, which only a defect of the hub can cause.
///
/// The code that finds a violation gives up the connection, the loop or the answer concerned (such an answer never
/// permits anything) and continues. An operator sees a counter, and the violated rule in the log.
public enum Impossible {
    /// Room (module) in which a rule was violated.
    public enum Room: String, MetricLabel {
        case asking, catalog, judging, authorizing, messages, delivery

        public static let labelName = "room"
    }

    /// Violations by room. Only this counter belongs to the whole process and is not passed to its users: a defect of
    /// the hub belongs to no project, and the code that finds it often does not know for which project it works.
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
