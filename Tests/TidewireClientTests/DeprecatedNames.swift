import TidewireClient

// Code of an app that still uses the former names. It compiles only while each alias stands for the renamed type.

@available(*, deprecated)
private enum FormerNames {
    static func filter(_ filter: Filter<Note>) -> LiveFilter<Note> { filter }
    static func change(_ change: Change<Note>) -> LiveChange<Note> { change }
    static func batch(_ batch: Batch<Note>) -> LiveBatch<Note> { batch }
    static func column(_ column: Column<String>) -> LiveColumn<String> { column }
    static func position(_ position: Position) -> LogPosition { position }
    static func problem(_ problem: Problem) -> TidewireProblem { problem }
    static func room(_ room: Room) -> TidewireRoom { room }
    static func resolution(_ resolution: Resolution) -> ConflictResolution { resolution }
}
