/// A rule was broken that only a mistake of ours can break.
///
/// Whoever finds it out goes on without what it concerns, the connection, the loop or the answer, which is never a yes
/// then; an operator sees it counted and reads which rule it was.
public enum Impossible {
    public static func happened(_ rule: StaticString, in room: Metrics.Room) {
        Metrics.shared.impossibleStates[room].add()
        Log.shared.error("a rule of the hub's own was broken; what it concerns was given up", [.reason("\(rule)")])
    }
}
