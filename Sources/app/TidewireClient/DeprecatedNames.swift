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
