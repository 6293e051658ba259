import CTexts
import Settings

/// The hub's HTTP interface as an OpenAPI document, which `/api/openapi` answers.
public enum OpenAPI {
    public static let document = Array(text.replacing("VERSION", with: Product.version, maxReplacements: 1).utf8)

    private static var text: String {
        // SAFETY: the bytes are a constant of the program, as many as it says.
        let file = unsafe tw_openapi()
        return unsafe String(
            decoding: UnsafeRawBufferPointer(start: file.text, count: file.length), as: UTF8.self)
    }
}
