// Former names of public types. `Binding` and `Numeric` have no alias: SwiftUI and the standard library use these names.

@available(*, deprecated, renamed: "LiveFilter")
public typealias Filter<Row: LiveRow> = LiveFilter<Row>

@available(*, deprecated, renamed: "LiveChange")
public typealias Change<Row: LiveRow> = LiveChange<Row>

@available(*, deprecated, renamed: "LiveBatch")
public typealias Batch<Row: LiveRow> = LiveBatch<Row>

@available(*, deprecated, renamed: "LiveColumn")
public typealias Column<Value: FilterValue> = LiveColumn<Value>

@available(*, deprecated, renamed: "LogPosition")
public typealias Position = LogPosition

@available(*, deprecated, renamed: "TidewireProblem")
public typealias Problem = TidewireProblem

@available(*, deprecated, renamed: "TidewireRoom")
public typealias Room = TidewireRoom

@available(*, deprecated, renamed: "ConflictResolution")
public typealias Resolution = ConflictResolution

@available(*, deprecated, renamed: "Tidewire.State")
public typealias ClientState = Tidewire.State

@available(*, deprecated, renamed: "Tidewire.States")
public typealias ClientStates = Tidewire.States

@available(*, deprecated, renamed: "Tidewire.OfflineReason")
public typealias OfflineReason = Tidewire.OfflineReason

@available(*, deprecated, renamed: "Tidewire.Interruption")
public typealias Interruption = Tidewire.Interruption

@available(*, deprecated, renamed: "Tidewire.MemoryStorage")
public typealias MemoryStorage = Tidewire.MemoryStorage

@available(*, deprecated, renamed: "Tidewire.FileStorage")
public typealias FileStorage = Tidewire.FileStorage

@available(*, deprecated, renamed: "TidewireRoom.OfflineBehavior")
public typealias WhenOffline = TidewireRoom.OfflineBehavior

@available(*, deprecated, renamed: "TidewireRoom.Presences")
public typealias Presences = TidewireRoom.Presences

@available(*, deprecated, renamed: "TidewireRoom.Event")
public typealias RoomEvent = TidewireRoom.Event

@available(*, deprecated, renamed: "TidewireRoom.Events")
public typealias RoomEvents = TidewireRoom.Events

@available(*, deprecated, renamed: "TidewireRoom.Messages")
public typealias RoomMessages<Element: Sendable> = TidewireRoom.Messages<Element>

@available(*, deprecated, renamed: "RoomMessageError.UnreadableMessage")
public typealias UnreadableMessage = RoomMessageError.UnreadableMessage

@available(*, deprecated, renamed: "JSONValue.ParsingError")
public typealias JSONError = JSONValue.ParsingError

/// Namespace of former names of types that belong to ``OfflineWrites``.
@available(*, deprecated, renamed: "OfflineWrites")
public enum OfflineQueue {
    public typealias Limits = OfflineWrites.Limits
    public typealias Refusal = OfflineWrites.Refusal
    public typealias Loss = OfflineWrites.Loss
}
