/// A rule was broken that only a mistake of ours can break.
///
/// Whoever finds it out goes on without what it concerns, the connection, the loop or the answer, which is never a yes
/// then; an operator sees it counted and reads which rule it was.
public enum Impossible {
    /// Where a rule was broken that only a mistake of ours can break.
    public enum Room: String, MetricLabel {
        case asking, catalog, judging, authorizing, messages, delivery

        public static let labelName = "room"
    }

    /// The only count that is the whole process's and passed to nobody: a mistake of ours is no project's, and who finds it
    /// out is often a value that knows nothing of who it works for.
    public static let states = CounterFamily<Room>(
        "tidewire_impossible_states_total",
        "Rules broken that only a mistake in the hub can break; what they concerned was given up. Never expected.")

    public static func happened(_ rule: StaticString, in room: Room) {
        states[room].add()
        Log.shared.error("a rule of the hub's own was broken; what it concerns was given up", [.reason("\(rule)")])
    }
}
