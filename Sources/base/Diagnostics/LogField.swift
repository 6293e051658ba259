/// One `key=value` of a log line.
public struct LogField: Sendable, Equatable {
    public enum Value: Sendable, Equatable {
        case text(String)
        case integer(Int64)
        case unsigned(UInt64)
        case flag(Bool)
        case milliseconds(Double)
    }

    public let key: LogKey
    public let value: Value

    /// Creates a field. The initializer is private, so that other code must call a key of `LogKey` to create one.
    fileprivate init(_ key: LogKey, _ value: Value) {
        self.key = key
        self.value = value
    }
}

extension LogKey {
    public func callAsFunction(_ value: String) -> LogField {
        LogField(self, .text(value))
    }

    /// Returns a field with a value's description, for example of an LSN or a failure.
    public func callAsFunction(_ value: some CustomStringConvertible) -> LogField {
        LogField(self, .text(value.description))
    }

    public func callAsFunction(_ value: some SignedInteger & FixedWidthInteger) -> LogField {
        LogField(self, .integer(Int64(value)))
    }

    public func callAsFunction(_ value: some UnsignedInteger & FixedWidthInteger) -> LogField {
        LogField(self, .unsigned(UInt64(value)))
    }

    public func callAsFunction(_ value: Bool) -> LogField {
        LogField(self, .flag(value))
    }

    /// Returns a field with a duration in milliseconds, the unit that the names of such keys contain.
    public func callAsFunction(_ value: Duration) -> LogField {
        LogField(self, .milliseconds(value / .milliseconds(1)))
    }
}
