/// Text that is used and never shown: printing, interpolating or dumping it gives asterisks.
public struct Secret: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    static let mask = "********"

    private let text: String

    public init(_ text: String) {
        self.text = text
    }

    /// Text of the secret. There is no other way to the text, so that every use of it can be found by this name.
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
