/// Text that is never shown: printing, interpolating or dumping it gives asterisks.
public struct Secret: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    static let mask = "********"

    private let text: String

    public init(_ text: String) {
        self.text = text
    }

    /// Text of the secret. This is the only way to read it, so that all uses can be found by this name.
    public var revealed: String {
        text
    }

    public var description: String {
        Self.mask
    }

    public var debugDescription: String {
        Self.mask
    }

    public var customMirror: Mirror {
        Mirror(self, children: [])
    }
}
