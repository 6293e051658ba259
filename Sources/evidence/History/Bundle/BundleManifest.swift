import Bytes

/// Description of a bundle, stored in the bundle itself.
public struct BundleManifest: Sendable {
    private var texts: [String: String] = [:]

    /// Reads the manifest, up to the first part that cannot be read.
    public init(_ json: [UInt8]) {
        var scanner = JSONScanner(json.rawBytes)
        guard (try? scanner.next()) == .beginObject else { return }
        while (try? scanner.next()) == .name {
            let name = scanner.text
            guard let value = try? scanner.next() else { return }
            if value == .string { texts[name] = scanner.text }
            guard (try? scanner.skip(value)) != nil else { return }
        }
    }

    public subscript(name: String) -> String? { texts[name] }
}
