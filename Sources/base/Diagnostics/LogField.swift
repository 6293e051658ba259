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

    /// Makes a field. Private on purpose: other code makes fields by calling a key, so nothing
    /// bypasses the keys in `LogKey`.
    fileprivate init(_ key: LogKey, _ value: Value) {
        self.key = key
        self.value = value
    }
}

extension LogKey {
    public func callAsFunction(_ value: String) -> LogField {
        LogField(self, .text(value))
    }

    /// Makes a field of any value that describes itself, such as an LSN or a failure.
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

    /// Makes a field in milliseconds, the unit in the names of the duration keys.
    public func callAsFunction(_ value: Duration) -> LogField {
        LogField(self, .milliseconds(value / .milliseconds(1)))
    }
}
